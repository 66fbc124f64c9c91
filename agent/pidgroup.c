// SPDX-License-Identifier: Apache-2.0
// The groups of pidfd.h: who ends together, and when that end is proven.
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/pidfd.h"
#include "base/loop.h"

static bool is_dead(struct pidfd_member *member)
{
    struct pollfd fd = {.fd = member->fd, .events = POLLIN};

    if (!member->is_dead && poll(&fd, 1, 0) == 1 && (fd.revents & POLLIN))
        member->is_dead = true;
    return member->is_dead;
}

// A dead one's place is free for a new one.
static struct pidfd_member *free_place(struct pidfd_group *group)
{
    if (group->count < PIDFD_MEMBERS_MAX)
        return &group->members[group->count++];
    for (size_t i = 0; i < group->count; i++) {
        if (!is_dead(&group->members[i]))
            continue;
        (void)close(group->members[i].fd);
        return &group->members[i];
    }
    return NULL;
}

static int add_member(struct pidfd_group *group, const struct pidfd_process *process,
                      struct err *err)
{
    struct pidfd_process now = {0};
    struct pidfd_member *place = NULL;
    int fd = -1;

    if (loop_pidfd_open(process->pid, &fd, err) < 0)
        return -1;
    // Whatever has that number since the pidfd was opened is what the pidfd speaks of.
    if (!pidfd_read_stat(group->view, process->pid, &now) ||
        now.start_ticks != process->start_ticks) {
        (void)close(fd);
        return err_set(err, ERR_TRANSIENT, ESRCH, "process %d is another one now",
                       process->pid);
    }
    place = free_place(group);
    if (!place) {
        (void)close(fd);
        return err_set(err, ERR_TRANSIENT, EMFILE, "more than %d processes", PIDFD_MEMBERS_MAX);
    }
    *place = (struct pidfd_member){
        .pid = process->pid, .start_ticks = process->start_ticks, .fd = fd};
    return 0;
}

bool pidfd_group_leader_lives(struct pidfd_group *group)
{
    return !is_dead(&group->members[0]);
}

int pidfd_group_open(struct pidfd_group *group, const struct pidfd_view *view,
                     const struct pidfd_process *leader, struct err *err)
{
    *group = (struct pidfd_group){.view = view, .leader = *leader};
    if (add_member(group, leader, err) < 0)
        return -1;
    if (pidfd_group_leader_lives(group))
        return 0;
    pidfd_group_close(group);
    return err_set(err, ERR_TRANSIENT, ESRCH, "process %d is dead", leader->pid);
}

void pidfd_group_close(struct pidfd_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        (void)close(group->members[i].fd);
    group->count = 0;
    group->leader = (struct pidfd_process){0};
    group->tag[0] = '\0';
}

static int send_signal(const struct pidfd_member *member, int number, struct err *err)
{
    if (syscall(SYS_pidfd_send_signal, member->fd, number, NULL, 0) == 0 || errno == ESRCH)
        return 0;
    return err_set(err, errno == EPERM ? ERR_DENIED : ERR_TRANSIENT, errno,
                   "signal to process %d: %m", member->pid);
}

int pidfd_group_may_kill(const struct pidfd_group *group, struct err *err)
{
    return send_signal(&group->members[0], 0, err);
}

int pidfd_group_watch_fd(const struct pidfd_group *group)
{
    for (size_t i = 0; i < group->count; i++)
        if (!group->members[i].is_dead)
            return group->members[i].fd;
    return -1;
}

static struct pidfd_member *find_member(struct pidfd_group *group,
                                        const struct pidfd_process *process)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->members[i].pid == process->pid &&
            group->members[i].start_ticks == process->start_ticks)
            return &group->members[i];
    return NULL;
}

// Ours is not a container's namespace: everything else may be in it.
static bool has_own_namespace(const struct pidfd_group *group)
{
    return group->leader.mount_ns != 0 && group->view->mount_ns != 0 &&
           group->leader.mount_ns != group->view->mount_ns;
}

static bool has_tag(const struct pidfd_group *group, int pid)
{
    char tag[FENCE_TAG_SIZE];

    if (!group->tag[0])
        return false;
    pidfd_read_tag(group->view, pid, tag);
    return strcmp(tag, group->tag) == 0;
}

static bool descends(const struct pidfd_group *group, int pid)
{
    for (size_t i = 0; i < group->count; i++)
        if (!group->members[i].is_dead &&
            pidfd_comes_from(group->view, pid, group->members[i].pid))
            return true;
    return false;
}

static bool belongs(const struct pidfd_group *group, const struct pidfd_process *process)
{
    const struct pidfd_view *view = group->view;

    if (process->pid == group->spared || pidfd_comes_from(view, process->pid, view->self))
        return false;
    if (has_own_namespace(group))
        return process->mount_ns == group->leader.mount_ns;
    return descends(group, process->pid) || has_tag(group, process->pid);
}

struct look {
    struct pidfd_group *group;
    bool has_life; // a member that may still do something
    bool kills;
    struct err *err; // of the first refusal
    bool is_refused;
};

static void end_member(struct look *look, struct pidfd_member *member)
{
    struct err err = {0};

    if (is_dead(member))
        return;
    look->has_life = true;
    if (!look->kills || send_signal(member, SIGKILL, &err) == 0 || look->is_refused)
        return;
    look->is_refused = true;
    *look->err = err;
}

static void look_at(int pid, void *arg)
{
    struct look *look = arg;
    struct pidfd_group *group = look->group;
    struct pidfd_process process = {0};
    struct err ignored = {0};

    if (pid == group->view->self || !pidfd_read_process(group->view, pid, &process) ||
        !pidfd_is_alive(&process) || find_member(group, &process) || !belongs(group, &process))
        return;
    if (add_member(group, &process, &ignored) < 0)
        look->has_life = ignored.code != ESRCH || look->has_life;
    else if (has_own_namespace(group))
        end_member(look, find_member(group, &process));
}

static void end_members(struct look *look)
{
    for (size_t i = 0; i < look->group->count; i++)
        end_member(look, &look->group->members[i]);
}

// Where members are known by descent all are looked for before the first one dies: it would
// leave its children to somebody else.
static void look_once(struct look *look)
{
    look->has_life = false;
    if (has_own_namespace(look->group))
        end_members(look);
    if (pidfd_each(look->group->view, look_at, look) < 0)
        look->has_life = true; // nothing was seen: nothing is proven
    end_members(look);
}

bool pidfd_group_look(struct pidfd_group *group)
{
    struct look look = {.group = group};

    // A child may be born behind the eye of one look by a parent that ends before it is seen.
    for (int i = 0; i < 2; i++) {
        look_once(&look);
        if (look.has_life)
            return false;
    }
    return true;
}

int pidfd_group_kill(struct pidfd_group *group, struct err *err)
{
    struct look look = {.group = group, .kills = true, .err = err};

    look_once(&look);
    return look.is_refused ? -1 : 0;
}
