/* Threads, forks, spawned programs, streams, tree walks, and descriptors by number; prints what fails. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <errno.h>
#include <dirent.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/vfs.h>
#include <spawn.h>
#define CHECK(x) do { if (!(x)) { printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno)); fflush(stdout); failed = 1; } } while (0)
extern char **environ;
static int failed, shared_fd;
static void *appender(void *arg)
{
    char line[32];
    int n = snprintf(line, sizeof line, "thread %ld.......\n", (long) arg);
    for (int i = 0; i < 200; i++)
        if (write(shared_fd, line, n) != n)
            failed = 1;
    return 0;
}

static int seen;
static int visit(const char *p, const struct stat *s, int t, struct FTW *f)
{
    (void) p;
    (void) s;
    (void) f;
    if (t == FTW_DP || t == FTW_F)
        seen++;
    return 0;
}

static int is_f(const struct dirent *d)
{
    return d->d_name[0] == 'f';
}

/* Many buffers of all lengths in one call, written and read in different pieces, to the end of the file and beyond. */
static void vectored(void)
{
    enum { BYTES = 3 << 20, COUNT = 64 };
    static char from[BYTES], to[BYTES + 4096];
    static const size_t lens[] = { 1, 0, 4095, 4096, 70001, 262143, 262144, 3, 400000 };
    unsigned seed = 1;
    for (int i = 0; i < BYTES; i++)
        from[i] = (char) (seed = seed * 1103515245 + 12345) ^ (char) (seed >> 16);
    int fd = open("vectored", O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int by_position = 0; by_position < 2; by_position++)
        for (int step = 1; step < 9; step++) {
            struct iovec iov[COUNT];
            size_t written = 0, read = 0;
            for (int i = 0, at = 0; i < COUNT; i++, at += step) {
                size_t len = lens[at % 9], left = BYTES - written;
                iov[i] = (struct iovec) { from + written, len < left ? len : left };
                written += iov[i].iov_len;
            }
            CHECK(ftruncate(fd, 0) == 0 && lseek(fd, 7, SEEK_SET) == 7);
            CHECK((by_position ? pwritev(fd, iov, COUNT, 7) : writev(fd, iov, COUNT)) == (ssize_t) written);
            CHECK(lseek(fd, 0, SEEK_CUR) == (by_position ? 7 : 7 + (off_t) written));
            memset(to, 'x', sizeof to);
            for (int i = 0, at = 4; i < COUNT; i++, at += step + 1) {
                size_t len = lens[at % 9], left = sizeof to - read;
                iov[i] = (struct iovec) { to + read, len < left ? len : left };
                read += iov[i].iov_len;
            }
            CHECK(lseek(fd, 7, SEEK_SET) == 7);
            size_t there = read < written ? read : written;
            CHECK((by_position ? preadv(fd, iov, COUNT, 7) : readv(fd, iov, COUNT)) == (ssize_t) there);
            CHECK(!memcmp(from, to, there));
            for (size_t i = there; i < sizeof to; i++)
                if (to[i] != 'x') {
                    CHECK(!"bytes behind those that were read");
                    break;
                }
        }
    close(fd);
}

int main(void)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    FILE *f = fopen("stdio", "w+");
    CHECK(f);
    CHECK(fileno(f) > 2);
    for (int i = 0; i < 10000; i++)
        fprintf(f, "%d\n", i);
    CHECK(ftell(f) == 48890);
    CHECK(fseek(f, 0, SEEK_SET) == 0);
    int v;
    CHECK(fscanf(f, "%d", &v) == 1 && v == 0);
    char line[64];
    fgets(line, 64, f);
    CHECK(fgets(line, 64, f) && !strcmp(line, "1\n"));
    CHECK(fseek(f, -5, SEEK_END) == 0);
    CHECK(fgets(line, 64, f) && !strcmp(line, "9999\n"));
    CHECK(fgetc(f) == EOF && feof(f));
    struct stat st;
    CHECK(fstat(fileno(f), &st) == 0 && st.st_size == 48890);
    rewind(f);
    fputs("X", f);
    CHECK(fflush(f) == 0);
    CHECK(fclose(f) == 0);
    f = fopen("stdio", "a");
    CHECK(ftell(f) == 48890);
    fputs("end\n", f);
    CHECK(ftell(f) == 48894);
    fclose(f);
    f = fopen("stdio", "r");
    char *l = 0;
    size_t cap = 0;
    int lines = 0;
    while (getline(&l, &cap, f) > 0)
        lines++;
    CHECK(lines == 10001);
    CHECK(freopen("stdio", "r", f) == f);
    CHECK(fgetc(f) == 'X');
    fclose(f);
    CHECK(!fopen("no/such", "r") && errno == ENOENT);
    CHECK(!fopen("stdio", "wx") && errno == EEXIST);
    int fd = open("fd", O_RDWR | O_CREAT | O_TRUNC, 0644);
    f = fdopen(fd, "w");
    CHECK(f && fileno(f) == fd);
    fputs("via fdopen", f);
    fclose(f);
    CHECK(close(fd) == -1 && errno == EBADF);
    fd = open("fd", O_RDWR);
    struct iovec iov[2] = { { "ab", 2 }, { "cde", 3 } };
    CHECK(pwritev(fd, iov, 2, 3) == 5);
    char b[20] = { 0 };
    CHECK(pread(fd, b, 20, 0) == 10 && !memcmp(b, "viaabcdeen", 8));
    CHECK(preadv2(fd, &(struct iovec) { b, 4 }, 1, -1, 0) == 4 && lseek(fd, 0, SEEK_CUR) == 4);
    vectored();
    CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0 && (fcntl(fd, F_GETFL) & O_APPEND));
    CHECK(write(fd, "Z", 1) == 1 && lseek(fd, 0, SEEK_CUR) == 11);
    close(fd);
    shared_fd = open("shared", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    pthread_t t[8];
    for (long i = 0; i < 8; i++)
        pthread_create(t + i, 0, appender, (void *) i);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], 0);
    CHECK(fstat(shared_fd, &st) == 0 && st.st_size == 8 * 200 * 16);
    for (int i = 0; i < 4; i++)
        if (fork() == 0) {
            appender((void *) (long) i);
            _exit(failed);
        }
    int s;
    while (wait(&s) > 0)
        CHECK(s == 0);
    CHECK(fstat(shared_fd, &st) == 0 && st.st_size == 12 * 200 * 16);
    CHECK(lseek(shared_fd, 0, SEEK_CUR) == st.st_size);
    /* An unlinked file is the child's as well once it has used it, whatever the parent does. */
    int go[2], used[2], unlinked = open("unlinked", O_RDWR | O_CREAT, 0600);
    CHECK(write(unlinked, "still here", 10) == 10 && unlink("unlinked") == 0 && pipe(go) == 0 && pipe(used) == 0);
    if (fork() == 0) {
        char c[10];
        CHECK(fstat(unlinked, &st) == 0 && write(used[1], "u", 1) == 1 && read(go[0], c, 1) == 1);
        CHECK(pread(unlinked, c, 10, 0) == 10 && !memcmp(c, "still here", 10));
        _exit(failed);
    }
    CHECK(read(used[0], b, 1) == 1 && close(unlinked) == 0 && write(go[1], "g", 1) == 1);
    CHECK(wait(&s) > 0 && s == 0);
    pid_t p = vfork();
    if (p == 0) {
        dup2(shared_fd, 1);
        execlp("echo", "echo", "-n", "0123456789abcdef", (char *) 0);
        _exit(1);
    }
    waitpid(p, &s, 0);
    CHECK(s == 0);
    CHECK(lseek(shared_fd, 0, SEEK_CUR) == 13 * 3200 - 3200 + 16);
    posix_spawn_file_actions_t a;
    posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_adddup2(&a, shared_fd, 1);
    char *argv[] = { "sh", "-c", "echo 0123456789abcde; printf 0123456789abcdef", 0 };
    CHECK(posix_spawnp(&p, "sh", &a, 0, argv, environ) == 0);
    waitpid(p, &s, 0);
    CHECK(s == 0 && lseek(shared_fd, 0, SEEK_CUR) == 12 * 3200 + 48);
    fflush(stdout);
    CHECK(system("echo from system > sys; cat sys > sys2") == 0);
    CHECK(stat("sys2", &st) == 0 && st.st_size == 12);
    f = popen("cat sys", "r");
    CHECK(fgets(line, 64, f) && !strcmp(line, "from system\n"));
    pclose(f);
    mkdir("w", 0755);
    mkdir("w/x", 0755);
    for (int i = 0; i < 30; i++) {
        sprintf(line, "w/f%02d", i);
        close(creat(line, 0644));
    }
    seen = 0;
    CHECK(nftw("w", visit, 10, FTW_DEPTH | FTW_PHYS) == 0 && seen == 32);
    struct dirent **list;
    CHECK(scandir("w", &list, is_f, alphasort) == 30 && !strcmp(list[29]->d_name, "f29"));
    glob_t g;
    CHECK(glob("w/f0*", 0, 0, &g) == 0 && g.gl_pathc == 10);
    globfree(&g);
    DIR *d = opendir("w");
    struct dirent *e;
    int n = 0;
    long pos = 0;
    char at[256];
    while ((e = readdir(d))) {
        n++;
        if (n == 10)
            pos = telldir(d);
        if (n == 11)
            strcpy(at, e->d_name);
    }
    CHECK(n == 33);
    seekdir(d, pos);
    e = readdir(d);
    CHECK(e && !strcmp(e->d_name, at));
    rewinddir(d);
    n = 0;
    while (readdir(d))
        n++;
    CHECK(n == 33);
    CHECK(fstatat(dirfd(d), "f03", &st, 0) == 0);
    closedir(d);
    char tmpl[] = "tmp.XXXXXX";
    fd = mkstemp(tmpl);
    CHECK(fd >= 0 && stat(tmpl, &st) == 0 && (st.st_mode & 0777) == 0600);
    unlink(tmpl);
    CHECK(write(fd, "x", 1) == 1);
    close(fd);
    char tmpd[] = "tmpd.XXXXXX";
    CHECK(mkdtemp(tmpd) && rmdir(tmpd) == 0);
    char *rp = realpath("w/../w/x/.", 0);
    CHECK(rp && !strcmp(rp + strlen(rp) - 4, "/w/x"));
    free(rp);
    struct statfs sf;
    CHECK(statfs("w", &sf) == 0 && sf.f_namelen == 255);
    fd = open("fd", O_RDONLY);
    int o = open("/tmp/pl-sendfile", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    if (sendfile(o, fd, 0, 5) < 0)
        CHECK(errno == EINVAL);
    if (copy_file_range(fd, 0, o, 0, 5, 0) < 0)
        CHECK(errno == EXDEV);
    close(o);
    unlink("/tmp/pl-sendfile");
    int n2 = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    CHECK(n2 >= 100 && (fcntl(n2, F_GETFD) & FD_CLOEXEC) && pread(n2, b, 1, 0) == 1);
    CHECK(close_range(fd, n2, 0) == 0 && pread(n2, b, 1, 0) == -1 && errno == EBADF);
    CHECK(access("fd", R_OK) == 0 && access("nofile", F_OK) == -1 && errno == ENOENT);
    CHECK(renameat2(AT_FDCWD, "fd", AT_FDCWD, "stdio", RENAME_NOREPLACE) == -1 && errno == EEXIST);
    CHECK(renameat2(AT_FDCWD, "fd", AT_FDCWD, "stdio", RENAME_EXCHANGE) == 0);
    struct statx sx;
    CHECK(statx(AT_FDCWD, "fd", 0, STATX_SIZE, &sx) == 0 && sx.stx_size == 48894);
    for (int i = 3; i < 1024; i++)
        close(i);
    fd = open("fd", O_RDONLY);
    CHECK(fd == 3 && read(fd, b, 1) == 1);
    CHECK(chdir("w") == 0);
    CHECK(getcwd(line, 64) && !strcmp(line + strlen(line) - 2, "/w"));
    CHECK(access("f03", F_OK) == 0);
    CHECK(remove("x") == 0 && remove("f03") == 0);
    puts("before freopen");
    fflush(stdout);
    CHECK(freopen("../fr", "w", stdout));
    puts("after freopen");
    printf("%d\n", failed);
    fflush(stdout);
    fprintf(stderr, "failed %d\n", failed);
    return failed;
}
