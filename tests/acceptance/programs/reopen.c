/* A stream for reading becomes one for writing. */
#include <stdio.h>

int main(void)
{
	FILE *f = fopen("r", "w");
	if (!f || fputs("r\n", f) < 0 || fclose(f) != 0)
		return 1;
	f = fopen("r", "r");
	if (!f || fgetc(f) != 'r')
		return 2;
	f = freopen("w", "w", f);
	if (!f || fputs("w", f) < 0 || fclose(f) != 0)
		return 3;
	return 0;
}
