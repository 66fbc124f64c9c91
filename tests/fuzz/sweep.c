// SPDX-License-Identifier: Apache-2.0
// sweep: a fuzz target's parser with its n-th allocation failing, for each n, on the inputs of
// a corpus. It refuses with a message, or it aborts, which is what the agent does without
// memory; anything else, a leak included where a sanitizer looks, is a failure. usage: sweep
// CORPUS_DIR
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_MAX  65536
#define INPUTS_MAX 6 // spread over the corpus
#define CALLS_MAX  100000

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#ifdef HAS_SANITIZER
#define REAL(name) __interceptor_##name
#else
#define REAL(name) __libc_##name
#endif

void *REAL(malloc)(size_t size);
void *REAL(calloc)(size_t count, size_t size);
void *REAL(realloc)(void *old, size_t size);

// ---- allocations

static struct {
    bool is_armed;
    int left; // until the one that fails
} faults;

static bool fails(void)
{
    if (!faults.is_armed || faults.left == 0 || --faults.left > 0)
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return fails() ? NULL : REAL(malloc)(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : REAL(calloc)(count, size);
}

void *realloc(void *old, size_t size)
{
    return fails() ? NULL : REAL(realloc)(old, size);
}

// ---- one input

struct shared {
    int n;        // the allocation that fails
    bool is_done; // none failed any more
};

struct input {
    char name[256];
    size_t size;
    uint8_t bytes[INPUT_MAX];
};

static _Noreturn void try_from(const struct input *input, int n, struct shared *shared)
{
    for (;; n++) {
        shared->n = n;
        faults.left = n;
        faults.is_armed = true;
        (void)LLVMFuzzerTestOneInput(input->bytes, input->size);
        faults.is_armed = false;
        if (faults.left > 0 || n > CALLS_MAX)
            break;
    }
    shared->is_done = faults.left > 0;
    exit(0); // NOLINT(concurrency-mt-unsafe): of one thread
}

static void show(int fd)
{
    char bytes[4096];
    ssize_t n = 0;

    (void)lseek(fd, 0, SEEK_SET);
    while ((n = read(fd, bytes, sizeof(bytes))) > 0)
        (void)fwrite(bytes, 1, (size_t)n, stdout);
}

// Runs a child from allocation n on; what it says goes to a file of its own. True: it went to
// the end, or ended by abort() and in silence; an assertion that fails speaks.
static bool run_child(const struct input *input, int n, struct shared *shared,
                      bool *ret_aborted)
{
    int fd = memfd_create("stderr", MFD_CLOEXEC);
    int status = 0;
    bool is_good = false;
    pid_t pid = fork();

    if (pid < 0 || fd < 0)
        abort();
    if (pid == 0) {
        (void)dup2(fd, STDERR_FILENO);
        try_from(input, n, shared);
    }
    if (waitpid(pid, &status, 0) != pid)
        abort();
    *ret_aborted =
        WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && lseek(fd, 0, SEEK_END) == 0;
    is_good = *ret_aborted || (status == 0 && shared->is_done);
    if (!is_good) {
        (void)printf("%s: wait status %d when allocation %d fails\n", input->name, status,
                     shared->n);
        show(fd);
    }
    (void)close(fd);
    return is_good;
}

static bool sweep(const struct input *input, struct shared *shared)
{
    int aborts = 0;
    bool aborted = false;

    *shared = (struct shared){.n = 0};
    do {
        if (!run_child(input, shared->n + 1, shared, &aborted))
            return false;
        aborts += aborted;
    } while (aborted);
    (void)printf("%-24s %4d allocations, %d of them needed\n", input->name, shared->n - 1,
                 aborts);
    return true;
}

// ---- the corpus

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool load(const char *dir, const char *name, struct input *ret)
{
    char path[1024];
    FILE *file = NULL;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "re");
    if (!file)
        return false;
    (void)snprintf(ret->name, sizeof(ret->name), "%s", name);
    ret->size = fread(ret->bytes, 1, sizeof(ret->bytes), file);
    (void)fclose(file);
    return true;
}

int main(int argc, char **argv)
{
    static struct input input;
    struct dirent **entries = NULL;
    int count = argc == 2 ? scandir(argv[1], &entries, is_file, alphasort) : -1;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int step = count > INPUTS_MAX ? count / INPUTS_MAX : 1;
    int passed = 0;
    int failed = 0;

    if (shared == MAP_FAILED)
        abort();
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < count; i += step) {
        bool is_good = load(argv[1], entries[i]->d_name, &input) && sweep(&input, shared);
        passed += is_good;
        failed += !is_good;
    }
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
    (void)printf("%d passed, %d failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
