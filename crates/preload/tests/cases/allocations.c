/* What programs do with memory and files at the same time: threads, streams, what the C library gives to be freed, forks.
   With `unmapped` no file is mapped; with `alone` it forks when no other thread is there. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 6
#define ROUNDS 8

static void expect(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static void use_stream(const char *name, int letter, size_t len) {
    FILE *stream = fopen(name, "w+");
    expect(stream != NULL, name);
    char *text = malloc(len);
    memset(text, letter, len);
    expect(fwrite(text, 1, len, stream) == len, "fwrite");
    rewind(stream);
    memset(text, 0, len);
    expect(fread(text, 1, len, stream) == len && text[len - 1] == letter, "fread");
    free(text);
    expect(fclose(stream) == 0, "fclose");
}

static void child(const char *name) {
    pid_t pid = fork();
    expect(pid >= 0, "fork");
    if (pid == 0) {
        use_stream(name, 'c', 3000);
        free(malloc(100));
        _exit(7);
    }
    int status;
    expect(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7, "child");
}

static int forks_alone;

static void *work(void *argument) {
    int me = (int)(long)argument;
    char name[64];
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(name, sizeof name, "file%d.%d", me, round);
        use_stream(name, 'a' + me, (size_t)100 << round);
        if (round % 4 == 0 && !forks_alone) child(name);
        int fd = open("/proc/self/status", O_RDONLY);
        char head[5];
        expect(fd >= 0 && read(fd, head, 5) == 5 && !memcmp(head, "Name:", 5) && close(fd) == 0, "status");
        if (round % 2) expect(unlink(name) == 0, "unlink");
    }
    return NULL;
}

int main(int count, char **arguments) {
    const char *without = count > 1 ? arguments[1] : "";
    forks_alone = !strcmp(without, "alone");
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) expect(pthread_create(&threads[i], NULL, work, (void *)i) == 0, "pthread_create");
    for (int i = 0; i < THREADS; i++) expect(pthread_join(threads[i], NULL) == 0, "pthread_join");
    if (forks_alone) child("file0.0");

    char *here = getcwd(NULL, 0), *real = realpath("file0.0", NULL), *line = NULL;
    expect(here && real && !strncmp(real, here, strlen(here)), "realpath");
    struct dirent **list;
    int entries = scandir(".", &list, NULL, alphasort);
    printf("%d entries, last %s\n", entries, list[entries - 1]->d_name);
    while (entries > 0) free(list[--entries]);
    glob_t found;
    expect(glob("file*.0", 0, NULL, &found) == 0, "glob");
    char pattern[4096];
    snprintf(pattern, sizeof pattern, "%s/file?.2", here);
    expect(glob(pattern, GLOB_APPEND, NULL, &found) == 0, "glob");
    printf("%zu found\n", found.gl_pathc);
    globfree(&found);
    FILE *stream = fopen("lines", "w+");
    size_t room = 0;
    expect(fputs("first\nsecond\n", stream) >= 0 && fflush(stream) == 0, "fputs");
    rewind(stream);
    expect(getline(&line, &room, stream) == 6 && !strcmp(line, "first\n"), "getline");
    int fd = fileno(stream);
    expect(dprintf(fd, "%d", 12345) == 5, "dprintf");
    if (strcmp(without, "unmapped")) {
        char *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        expect(mapped != MAP_FAILED && !memcmp(mapped, "first\nsecond\n", 13) && munmap(mapped, 4096) == 0, "mmap");
    }
    expect(fclose(stream) == 0, "fclose");
    DIR *dir = opendir(".");
    expect(dir && readdir(dir) && closedir(dir) == 0, "opendir");
    char *temporary = tempnam(here, "t");
    expect(temporary && !strncmp(temporary, here, strlen(here)), "tempnam");
    free(temporary);
    free(line);
    free(list);
    free(real);
    free(here);
    puts("done");
    return 0;
}
