/* Children that are spawned with all descriptors closed, and ranges of descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void spawn(int closes_first, const char *directory) {
    posix_spawn_file_actions_t actions;
    char *arguments[] = {"sh", "-c", "echo out; echo err >&2; pwd -P; test -e /proc/self/fd/40 && echo open", NULL};
    pid_t pid;
    int status;
    posix_spawn_file_actions_init(&actions);
    if (closes_first) posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (!closes_first) {
        posix_spawn_file_actions_addopen(&actions, 1, "out", O_CREAT | O_WRONLY | O_TRUNC, 0644);
        posix_spawn_file_actions_addopen(&actions, 7, "err", O_CREAT | O_RDWR | O_TRUNC, 0644);
        posix_spawn_file_actions_adddup2(&actions, 7, 2);
        posix_spawn_file_actions_addclose(&actions, 7);
    }
    if (directory) posix_spawn_file_actions_addchdir_np(&actions, directory);
    if (!closes_first) posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    fflush(stdout);
    int failed = posix_spawnp(&pid, "sh", &actions, NULL, arguments, environ);
    if (!failed) waitpid(pid, &status, 0);
    printf("spawned %d %d\n", failed, failed ? 0 : WEXITSTATUS(status));
    posix_spawn_file_actions_destroy(&actions);
}

int main(void) {
    char text[2];
    dup2(open("kept", O_CREAT | O_RDWR, 0644), 40);
    spawn(1, NULL);
    spawn(0, NULL);
    spawn(0, "below");
    spawn(0, "/");
    int fd = open("kept", O_RDONLY);
    int closed = close_range(fd, fd, 0);
    printf("%d %d\n", closed, read(fd, text, 1) < 0 && errno == EBADF);
    fd = open("kept", O_RDWR);
    closed = close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    printf("%d %zd %d\n", closed, write(fd, "x", 1), fcntl(fd, F_GETFD));
    closed = close_range(3, ~0U, CLOSE_RANGE_UNSHARE);
    printf("%d %d\n", closed, read(fd, text, 1) < 0 && errno == EBADF);
    closefrom(3);
    printf("%d\n", open("kept", O_RDONLY));
    return 0;
}
