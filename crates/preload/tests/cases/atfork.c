/* A library that writes down each fork, from handlers that it registered before the client's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PROGRAM
static void note(const char *what) {
    FILE *log = fopen("log", "a");
    if (!log || fprintf(log, "%s\n", what) < 0 || fclose(log)) abort();
    int fd = open("log", O_RDWR);
    struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char *text = mmap(NULL, 6, PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || fcntl(fd, F_SETLKW, &all) || text == MAP_FAILED || memcmp(text, "before", 6)) abort();
    if (munmap(text, 6) || close(fd)) abort();
}

static void before(void) { note("before"); }
static void in_parent(void) { note("in the parent"); }
static void in_child(void) { note("in the child"); }
__attribute__((constructor)) static void start(void) { pthread_atfork(before, in_parent, in_child); }
void linked(void) {}
#else
void linked(void);

int main(void) {
    linked();
    alarm(60);
    for (int round = 0; round < 3; round++) {
        pid_t pid = fork();
        if (pid == 0) _exit(round + 5);
        int status;
        if (waitpid(pid, &status, 0) != pid) return 1;
        printf("%d\n", WEXITSTATUS(status));
    }
    return 0;
}
#endif
