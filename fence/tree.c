// SPDX-License-Identifier: Apache-2.0
#include "fence/tree.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/proc.h"

#define PROCESSES_MAX  32768 // at a time; those beyond are met in the next rounds
#define PATIENT_ROUNDS 3

// Processes whose children are still to be found. Static: nothing is allocated while we kill.
static struct {
    pid_t list[PROCESSES_MAX];
    size_t count;
} found;

int tree_adopt(void)
{
    return prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

// SIGKILL to each child of the thread, and note it for its own children. It cannot be somebody
// else by now: a pid below us is not given away before it is reaped.
static void kill_children(pid_t child, void *arg)
{
    (void)arg;
    (void)kill(child, SIGKILL);
    if (found.count < PROCESSES_MAX)
        found.list[found.count++] = child;
}

static void kill_descendants(pid_t self)
{
    found.count = 0;
    proc_each_child(self, kill_children, NULL);
    for (size_t i = 0; i < found.count; i++)
        proc_each_child(found.list[i], kill_children, NULL);
}

void tree_kill(pid_t root, unsigned round)
{
    pid_t self = getpid();

    if (root > 0) {
        (void)kill(root, SIGKILL);
        (void)kill(-root, SIGKILL);
    }
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
