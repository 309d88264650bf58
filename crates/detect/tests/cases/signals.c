/* Looks at a file again and again while signals interrupt it; between two looks, another path lies where the file's does. */
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>

static void interrupt(int signal)
{
	(void) signal;
}

int main(int argc, char **argv)
{
	static char path[4096];
	struct sigaction action = { .sa_handler = interrupt };
	struct itimerval often = { { 0, 20 }, { 0, 20 } };
	struct stat found;
	if (argc != 2 || sigaction(SIGALRM, &action, 0) != 0 || setitimer(ITIMER_REAL, &often, 0) != 0)
		return 2;
	for (int i = 0; i < 10000; i++) {
		strcpy(path, "/tmp");
		stat(path, &found);
		strcpy(path, argv[1]);
	}
	return 0;
}
