/* Threads with the smallest stacks that there are, first of all to touch files here. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static char data[1 << 20], link_text[PATH_MAX];

static void expect(int holds, const char *what) {
    if (!holds) {
        printf("%s: %s\n", what, strerror(errno));
        exit(1);
    }
}

static void *work(void *argument) {
    (void)argument;
    struct stat found;
    struct statvfs whole;
    int fd = open("small", O_CREAT | O_RDWR, 0644);
    expect(fd >= 0, "open");
    expect(write(fd, data, sizeof data) == sizeof data, "write");
    expect(pread(fd, data, sizeof data, 0) == sizeof data, "pread");
    expect(fstat(fd, &found) == 0 && found.st_size == sizeof data, "fstat");
    expect(stat("./small", &found) == 0 && ftruncate(fd, 10) == 0 && lseek(fd, 0, SEEK_END) == 10, "size");
    struct pollfd ready = {fd, POLLIN, 0};
    expect(poll(&ready, 1, -1) == 1, "poll");
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    expect(select(fd + 1, &set, NULL, NULL, NULL) == 1 && FD_ISSET(fd, &set), "select");
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    expect(flock(fd, LOCK_EX) == 0 && fcntl(fd, F_SETLKW, &range) == 0, "locks");
    expect(setxattr("small", "user.a", "b", 1, 0) == 0 && getxattr("small", "user.a", data, 10) == 1, "attributes");
    expect(fsync(fd) == 0, "fsync");
    void *copy = mmap(NULL, 10, PROT_READ, MAP_PRIVATE, fd, 0);
    expect(copy != MAP_FAILED && munmap(copy, 10) == 0, "mmap");
    pid_t pid = fork();
    if (pid == 0) _exit(pwrite(fd, "x", 1, 0) == 1 ? 3 : 4);
    int status;
    expect(waitpid(pid, &status, 0) == pid && status == 3 << 8, "fork");
    expect(close(fd) == 0, "close");
    expect(rename("small", "other") == 0 && link("other", "third") == 0 && unlink("other") == 0, "rename");
    expect(mkdir("directory", 0755) == 0 && statvfs("directory", &whole) == 0, "mkdir");
    DIR *dir = opendir(".");
    expect(dir != NULL && readdir(dir) != NULL && closedir(dir) == 0, "readdir");
    expect(chdir("directory") == 0 && getcwd(link_text, sizeof link_text) != NULL, "chdir");
    expect(symlink("../third", "link") == 0 && readlink("link", data, 100) == 8, "readlink");
    expect(realpath("link", link_text) != NULL && open("link/x", O_RDONLY) < 0 && errno == ENOTDIR, "realpath");
    expect(chdir("..") == 0 && open("../nothing/here", O_RDONLY) < 0 && errno == ENOENT, "climb");
    FILE *stream = fopen("third", "r+");
    expect(stream != NULL && fgetc(stream) == 'x' && fclose(stream) == 0, "fopen");
    return NULL;
}

int main(void) {
    memset(data, 1, sizeof data);
    long len = sysconf(_SC_THREAD_STACK_MIN), page = sysconf(_SC_PAGESIZE);
    char *stack = mmap(NULL, len + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    expect(stack != MAP_FAILED && mprotect(stack, page, PROT_NONE) == 0 && pthread_attr_init(&attributes) == 0, "stack");
    expect(pthread_attr_setstack(&attributes, stack + page, len) == 0, "pthread_attr_setstack");
    expect(pthread_create(&thread, &attributes, work, NULL) == 0 && pthread_join(thread, NULL) == 0, "pthread_create");
    puts("done");
    return 0;
}
