/* Forks that share an open file's offset, write after their parent closed it, and hand descriptors on through exec. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		_exit(1);
	}
}

static void reap(pid_t child)
{
	int status;
	check(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "child");
}

int main(int argc, char **argv)
{
	if (argc == 2) { /* after exec: the descriptor is open, at the offset where it was left */
		int fd = atoi(argv[1]);
		check(lseek(fd, 0, SEEK_CUR) == 40, "offset after exec");
		check(write(fd, "exec", 4) == 4, "write after exec");
		return 0;
	}
	int fd = open("f", O_CREAT | O_RDWR | O_TRUNC, 0644);
	check(fd >= 0, "open");
	for (int i = 0; i < 4; i++) {
		pid_t child = fork();
		if (child == 0) {
			check(write(fd, "0123456789", 10) == 10, "write in a child");
			_exit(0);
		}
		reap(child);
	}
	check(lseek(fd, 0, SEEK_CUR) == 40, "children move the common offset");

	char number[12];
	snprintf(number, sizeof number, "%d", fd);
	pid_t child = fork();
	if (child == 0) {
		execl("/proc/self/exe", argv[0], number, (char *)NULL);
		_exit(127);
	}
	reap(child);
	check(lseek(fd, 0, SEEK_CUR) == 44, "offset after a child's exec");

	/* The parent closes, and the file has no name any more; the child, which has used it, still has it. */
	int used[2], go[2];
	check(pipe(used) == 0 && pipe(go) == 0, "pipe");
	child = fork();
	if (child == 0) {
		char byte;
		struct stat stat;
		close(go[1]);
		check(fstat(fd, &stat) == 0 && write(used[1], "x", 1) == 1, "use");
		check(read(go[0], &byte, 1) == 1, "go");
		check(fstat(fd, &stat) == 0 && stat.st_nlink == 0, "fstat without a name");
		check(pwrite(fd, "late", 4, 0) == 4, "write without a name");
		char back[4];
		check(pread(fd, back, 4, 0) == 4 && !memcmp(back, "late", 4), "read without a name");
		_exit(0);
	}
	char byte;
	check(read(used[0], &byte, 1) == 1, "used");
	check(unlink("f") == 0 && close(fd) == 0, "unlink and close");
	check(write(go[1], "x", 1) == 1, "go");
	reap(child);
	check(open("f", O_RDONLY) < 0 && errno == ENOENT, "gone");

	/* Close-on-exec, and dup2 onto standard output. */
	fd = open("out", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	check(fd >= 0, "open");
	child = fork();
	if (child == 0) {
		check(dup2(fd, STDOUT_FILENO) == STDOUT_FILENO, "dup2");
		execlp("echo", "echo", "through dup2", (char *)NULL);
		_exit(127);
	}
	reap(child);
	struct stat stat;
	check(fstat(fd, &stat) == 0 && stat.st_size == 13, "size of what the child wrote");
	puts("good");
	return 0;
}
