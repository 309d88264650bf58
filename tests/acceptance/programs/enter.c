/* Goes to a directory and becomes a program: `enter DIRECTORY PROGRAM ARGUMENT...`. */
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	if (argc < 3 || chdir(argv[1])) {
		perror("enter");
		return 126;
	}
	execvp(argv[2], argv + 2);
	perror(argv[2]);
	return 127;
}
