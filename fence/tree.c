// SPDX-License-Identifier: Apache-2.0
#include "fence/tree.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/proc.h"

#define PROCESSES_MAX  32768 // of the PID namespace; those beyond are met in the next rounds
#define PATIENT_ROUNDS 3

struct process {
    pid_t pid;
    pid_t parent;
    bool is_ours;
};

static struct {
    struct process list[PROCESSES_MAX];
    size_t count;
} seen;

int tree_adopt(void)
{
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static void note_process(pid_t pid, void *arg)
{
    struct proc_stat stat = {0};

    (void)arg;
    if (seen.count == PROCESSES_MAX || !proc_stat_read(pid, &stat))
        return;
    // A zombie needs no signal, but its children do.
    seen.list[seen.count++] = (struct process){.pid = pid, .parent = stat.parent};
}

static bool is_ours(pid_t pid)
{
    for (size_t i = 0; i < seen.count; i++)
        if (seen.list[i].pid == pid)
            return seen.list[i].is_ours;
    return false;
}

// Marks and kills the descendants of self, each once: parents mostly come before their
// children, so a second pass rarely finds anything.
static void kill_descendants(pid_t self)
{
    bool found = true;

    while (found) {
        found = false;
        for (size_t i = 0; i < seen.count; i++) {
            struct process *process = &seen.list[i];
            if (process->is_ours || (process->parent != self && !is_ours(process->parent)))
                continue;
            process->is_ours = true;
            found = true;
            // It cannot be somebody else by now: a pid below us is not given away before we
            // reap.
            (void)kill(process->pid, SIGKILL);
        }
    }
}

void tree_kill(pid_t root, unsigned round)
{
    pid_t self = getpid();

    if (root > 0) {
        (void)kill(root, SIGKILL);
        (void)kill(-root, SIGKILL);
    }
    seen.count = 0;
    if (proc_each(note_process, NULL) == 0)
        kill_descendants(self);
    // Last, because it also ends what others run in this container, a probe or a shell.
    if (self == 1 && round >= PATIENT_ROUNDS)
        (void)kill(-1, SIGKILL);
}

void tree_reap(pid_t root, struct tree_end *end)
{
    int status = 0;
    pid_t pid = 0;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0 || (pid < 0 && errno == EINTR)) {
        if (pid == root) {
            end->root_ended = true;
            end->wait_status = status;
        }
    }
    end->is_empty = pid < 0 && errno == ECHILD;
}
