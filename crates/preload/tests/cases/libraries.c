/* Libraries that lie here: loaded once, found again, left, and changed; and who calls counts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *load(const char *path, int flags)
{
	void *library = dlopen(path, flags);
	if (!library)
		printf("%s\n", dlerror());
	return library;
}

static int call(void *library, const char *name)
{
	int (*function)(void) = (int (*)(void)) dlsym(library, name);
	return function ? function() : -1;
}

int main(int argc, char **argv)
{
	char path[4100];
	snprintf(path, sizeof path, "%s/./first.so", getcwd(0, 0));
	void *first = load("./first.so", RTLD_NOW);
	printf("count %d %d\n", call(first, "count"), call(first, "count"));
	void *again = load(path, RTLD_LAZY | RTLD_LOCAL);
	printf("the same: %d, count %d\n", first == again, call(again, "count"));
	printf("linked: %d\n", load("link.so", RTLD_NOW) == 0);
	printf("by a link: %d\n", load("./link.so", RTLD_NOW) == first);
	printf("there: %d\n", dlopen("./first.so", RTLD_NOW | RTLD_NOLOAD) == first);
	void *second = load("sub/second.so", RTLD_NOW | RTLD_GLOBAL);
	printf("another: %d, %d\n", second != first, call(second, "other"));
	printf("for all: %d\n", dlsym(RTLD_DEFAULT, "other") != 0 && dlsym(RTLD_DEFAULT, "count") == 0);
	closefrom(3);
	printf("after closefrom: %d\n", load("./first.so", RTLD_NOW) == first);
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		printf("child: %d %d\n", load("./first.so", RTLD_NOW) == first, call(load("sub/third.so", RTLD_NOW), "other"));
		exit(0);
	}
	waitpid(child, 0, 0);
	printf("text: %d\n", dlopen("./text.so", RTLD_NOW) != 0);
	printf("itself: %d, libc: %d, libm: %d\n", load(0, RTLD_NOW) != 0, load("libc.so.6", RTLD_NOW) != 0, load("libm.so.6", RTLD_NOW) != 0);
	/* One that needs one beside it, which needs one below. */
	void *needing = load("sub/needing.so", RTLD_NOW);
	printf("needed: %d\n", call(needing, "sum"));
	printf("of its own: %d\n", dlsym(RTLD_DEFAULT, "deep") == 0);
	/* A changed file is another library, once nobody has the first. */
	for (int i = 0; i < 6; i++)
		dlclose(first);
	rename("sub/third.so", "first.so");
	void *changed = load("./first.so", RTLD_NOW);
	printf("changed: %d %d\n", call(changed, "count"), call(changed, "other"));
	/* The directory that a library was linked with is that library's own. */
	void *caller = load(argv[1], RTLD_NOW);
	printf("caller: %d\n", call(caller, "beside"));
	printf("not ours: %d\n", load("beside.so", RTLD_NOW) != 0);
	return 0;
}
