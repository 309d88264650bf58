/* Every way to become, or to start, another program, which writes to an inherited descriptor; prints what fails. */
#define _GNU_SOURCE
#include <errno.h>
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
#include <wordexp.h>

extern char **environ;
static int failed, fd;
static char script[100];

#define CHECK(x)                                                                     \
	do {                                                                         \
		if (!(x)) {                                                          \
			failed++;                                                    \
			printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno));  \
			fflush(stdout);                                              \
		}                                                                    \
	} while (0)

static int ended(pid_t child)
{
	int status = -1;
	if (child < 0)
		return -1;
	while (waitpid(child, &status, 0) != child)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -status;
}

#define IN_CHILD(x)                                  \
	do {                                         \
		fflush(stdout);                      \
		pid_t child = fork();                \
		if (child == 0) {                    \
			x;                           \
			_exit(100 + errno);          \
		}                                    \
		int status = ended(child);           \
		if (status != 0)                     \
			printf("%d: %s\n", status, #x); \
	} while (0)

static int in_clone(void *text)
{
	return dprintf(fd, "%s\n", (char *) text) == 6 ? 0 : 1;
}

int main(int argc, char **argv)
{
	fd = open("out", O_CREAT | O_RDWR | O_APPEND, 0644);
	char *say = script;
	snprintf(script, sizeof script, "echo \"$0 $1 $X\" >&%d", fd);
	char *list[] = { "sh", "-c", say, "list", "arg", 0 };
	char *env[] = { "X=env", getenv("PATH") - 5, "", 0, 0, 0, 0, 0, 0, 0 };
	int n = 2;
	for (char **e = environ; *e && n < 9; e++)
		if (!strncmp(*e, "LD_PRELOAD=", 11) || !strncmp(*e, "ISONOMIA_", 9))
			env[n++] = *e;
	env[n] = 0;
	setenv("X", "own", 1);
	IN_CHILD(execl("/bin/sh", "sh", "-c", say, "execl", "arg", (char *) 0));
	IN_CHILD(execlp("sh", "sh", "-c", say, "execlp", "1", "2", "3", "4", "5", "6", "7", (char *) 0));
	IN_CHILD(execle("/bin/sh", "sh", "-c", say, "execle", "arg", (char *) 0, env));
	IN_CHILD(execv("/bin/sh", list));
	IN_CHILD(execvp("sh", list));
	IN_CHILD(execve("/bin/sh", list, env));
	IN_CHILD(execvpe("sh", list, env));
	IN_CHILD(fexecve(open("/bin/sh", O_RDONLY), list, env));
	IN_CHILD(execveat(AT_FDCWD, "/bin/sh", list, env, 0));
	IN_CHILD(syscall(SYS_execve, "/bin/sh", list, environ));
	pid_t child;
	CHECK(posix_spawn(&child, "/bin/sh", 0, 0, list, env) == 0 && ended(child) == 0);
	CHECK(posix_spawnp(&child, "sh", 0, 0, list, env) == 0 && ended(child) == 0);
	CHECK(system(script) == 0);
	FILE *stream = popen(script, "r");
	CHECK(stream && pclose(stream) == 0);
	wordexp_t words;
	CHECK(wordexp("$(cat out | wc -l) \"$X\"", &words, 0) == 0 && words.we_wordc == 2);
	printf("words %s %s\n", words.we_wordv[0], words.we_wordv[1]);
	CHECK((child = _Fork()) >= 0);
	if (child == 0)
		_exit(write(fd, "_Fork\n", 6) != 6);
	CHECK(ended(child) == 0);
	static char stack[256 << 10];
	CHECK(ended(clone(in_clone, stack + sizeof stack, SIGCHLD, "clone")) == 0);

	/* What does not start, starts nothing. */
	IN_CHILD(execl("/no/such/program", "x", (char *) 0));
	IN_CHILD(execl("out", "x", (char *) 0));
	IN_CHILD(execl(".", "x", (char *) 0));
	IN_CHILD(execlp("", "x", (char *) 0));
	CHECK(posix_spawn(&child, "./nothing", 0, 0, list, env) == ENOENT);
	CHECK(posix_spawnp(&child, "./out", 0, 0, list, env) == EACCES);

	/* Programs and scripts that lie here. */
	char *here[] = { "program", "one", 0 };
	IN_CHILD(execl("./program", "program", "two", (char *) 0));
	IN_CHILD(execv("bin/program", here));
	IN_CHILD(execvp("./script", here));
	IN_CHILD(execl("./nested", "nested", "deep", (char *) 0));
	IN_CHILD(fexecve(open("program", O_RDONLY | O_CLOEXEC), here, environ));
	IN_CHILD(fexecve(open("script", O_RDONLY), here, environ));
	IN_CHILD(execveat(open("bin", O_RDONLY | O_DIRECTORY), "program", here, environ, 0));
	IN_CHILD(execvp("./plain", here));
	IN_CHILD(execv("./plain", here));
	char path[5000];
	snprintf(path, sizeof path, "/nowhere:%s/bin:%s", getcwd(0, 0), getenv("PATH"));
	setenv("PATH", path, 1);
	IN_CHILD(execlp("program", "program", "found", (char *) 0));
	CHECK(posix_spawnp(&child, "program", 0, 0, here, environ) == 0 && ended(child) == 0);
	CHECK(posix_spawn(&child, "./script", 0, 0, here, environ) == 0 && ended(child) == 0);
	CHECK(system("./script from system") == 0);

	/* What posix_spawn is told to do in the child. */
	posix_spawn_file_actions_t actions;
	char *cat[] = { "sh", "-c", "cat; pwd | sed 's,.*/,,'; echo to a file >&7; ls", 0 };
	posix_spawn_file_actions_init(&actions);
	CHECK(posix_spawn_file_actions_addopen(&actions, 0, "input", O_RDONLY, 0) == 0);
	CHECK(posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_WRONLY | O_CREAT | O_TRUNC, 0640) == 0);
	CHECK(posix_spawn_file_actions_addopen(&actions, 7, "seven", O_WRONLY | O_CREAT, 0600) == 0);
	CHECK(posix_spawn_file_actions_addchdir_np(&actions, "bin") == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, 1, 2) == 0);
	CHECK(posix_spawnp(&child, "sh", &actions, 0, cat, environ) == 0 && ended(child) == 0);
	CHECK(posix_spawn_file_actions_destroy(&actions) == 0);
	posix_spawn_file_actions_init(&actions);
	int bin = open("bin", O_RDONLY | O_DIRECTORY);
	CHECK(posix_spawn_file_actions_addfchdir_np(&actions, bin) == 0);
	char *pwd[] = { "sh", "-c", "pwd | sed 's,.*/,,'; ls", 0 };
	fflush(stdout);
	CHECK(posix_spawnp(&child, "sh", &actions, 0, pwd, environ) == 0 && ended(child) == 0);
	CHECK(posix_spawn_file_actions_addchdir_np(&actions, "/") == 0);
	pwd[2] = "pwd";
	CHECK(posix_spawnp(&child, "sh", &actions, 0, pwd, environ) == 0 && ended(child) == 0);
	posix_spawn_file_actions_destroy(&actions);
	close(bin);
	fd = open("after", O_CREAT | O_RDWR, 0644);
	printf("%d %d failed\n", fd, failed);
	return failed != 0;
}
