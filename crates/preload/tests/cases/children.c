/* A child writes to a file that it inherited after its parent closed it and opened others: never into those. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static int failed, fd, go[2];
static char script[200];
static char *shell[] = { "sh", "-c", script, 0 };

#define CHECK(x)                                                     \
	do {                                                         \
		if (!(x)) {                                          \
			failed++;                                    \
			printf("line %d: %s\n", __LINE__, #x);       \
		}                                                    \
	} while (0)

static pid_t by_fork(void)
{
	pid_t child = fork();
	if (child == 0) {
		char byte;
		_exit(!(read(go[0], &byte, 1) == 1 && write(fd, "child\n", 6) == 6));
	}
	return child;
}

static pid_t by_fork_and_exec(void)
{
	pid_t child = fork();
	if (child == 0) {
		execvp("sh", shell);
		_exit(127);
	}
	return child;
}

static pid_t by_vfork(void)
{
	pid_t child = vfork();
	if (child == 0) {
		execvp("sh", shell);
		_exit(127);
	}
	return child;
}

static pid_t by_spawn(void)
{
	pid_t child = -1;
	CHECK(posix_spawnp(&child, "sh", 0, 0, shell, environ) == 0);
	return child;
}

static int program(void *unused)
{
	execvp("sh", shell);
	_exit(127);
}

static pid_t by_clone(void)
{
	static char stack[256 << 10];
	return clone(program, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
}

/* What the child does once it is told to; the parent closes and opens files meanwhile. */
static void try(const char *way, pid_t (*make)(void))
{
	char name[40], other[40], line[64] = "";
	snprintf(name, sizeof name, "kept-%s", way);
	for (int round = 0; round < 3; round++) {
		CHECK(pipe(go) == 0 && dup2(go[0], 9) == 9);
		fd = open(name, O_CREAT | O_RDWR | O_APPEND, 0644);
		snprintf(script, sizeof script, "read x <&9; echo child >&%d", fd);
		pid_t child = make();
		CHECK(child > 0 && close(fd) == 0);
		int others[20];
		for (int i = 0; i < 20; i++) {
			snprintf(other, sizeof other, "other-%s-%d", way, i);
			others[i] = open(other, O_CREAT | O_RDWR | O_TRUNC, 0644);
			CHECK(others[i] >= 0 && write(others[i], "parent\n", 7) == 7);
		}
		CHECK(write(go[1], "\n", 1) == 1);
		int status = -1;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
		for (int i = 0; i < 20; i++) {
			CHECK(lseek(others[i], 0, SEEK_END) == 7);
			CHECK(pread(others[i], line, 64, 0) == 7 && !memcmp(line, "parent\n", 7));
			CHECK(close(others[i]) == 0);
		}
		CHECK(close(go[0]) == 0 && close(go[1]) == 0 && close(9) == 0);
	}
	fd = open(name, O_RDONLY);
	CHECK(read(fd, line, 64) == 18 && !memcmp(line, "child\nchild\nchild\n", 18));
	CHECK(close(fd) == 0);
}

int main(void)
{
	/* Pages that may be used again are there before the first child. */
	for (int i = 0; i < 4; i++)
		CHECK(close(open("first", O_CREAT | O_RDWR, 0644)) == 0);
	try("fork", by_fork);
	try("exec", by_fork_and_exec);
	try("vfork", by_vfork);
	try("spawn", by_spawn);
	try("clone", by_clone);
	/* The C library makes these children itself. */
	for (int i = 0; i < 3; i++) {
		fd = open("kept-system", O_CREAT | O_RDWR | O_APPEND, 0644);
		snprintf(script, sizeof script, "(sleep 0.1; echo child >&%d) & echo started", fd);
		CHECK(system(script) == 0 && close(fd) == 0);
		int other = open("other-system", O_CREAT | O_RDWR | O_TRUNC, 0644);
		snprintf(script, sizeof script, "for n in $(seq 500); do [ $(wc -l < kept-system) = %d ] && exit 0; sleep 0.02; done; exit 1", i + 1);
		CHECK(system(script) == 0 && lseek(other, 0, SEEK_END) == 0 && close(other) == 0);
		fd = open("kept-popen", O_CREAT | O_RDWR | O_APPEND, 0644);
		snprintf(script, sizeof script, "read x; echo child >&%d", fd);
		FILE *stream = popen(script, "w");
		CHECK(stream && close(fd) == 0);
		other = open("other-popen", O_CREAT | O_RDWR | O_TRUNC, 0644);
		CHECK(fputs("go\n", stream) >= 0 && pclose(stream) == 0);
		CHECK(lseek(other, 0, SEEK_END) == 0 && close(other) == 0);
	}
	printf("%d failed\n", failed);
	return failed != 0;
}
