/* A stream for reading becomes one for writing, one for both, and one for reading again. */
#include <stdio.h>
#include <string.h>

int main(void)
{
	char line[20] = "";
	FILE *f = fopen("r", "w");
	if (!f || fputs("reading\n", f) < 0 || fclose(f) != 0)
		return 1;
	f = fopen("r", "r");
	if (!f || fgetc(f) != 'r')
		return 2;
	f = freopen("w", "w", f);
	if (!f || ftell(f) != 0 || fputs("written\n", f) < 0 || ftell(f) != 8 || fgetc(f) != EOF)
		return 3;
	f = freopen("r", "r+", f);
	if (!f || ftell(f) != 0 || !fgets(line, 20, f) || strcmp(line, "reading\n"))
		return 4;
	if (fseek(f, 0, SEEK_SET) != 0 || fputs("R", f) < 0 || ftell(f) != 1)
		return 5;
	f = freopen("w", "a", f);
	if (!f || fputs("more\n", f) < 0 || fgetc(f) != EOF)
		return 6;
	f = freopen("w", "r", f);
	if (!f || !fgets(line, 20, f) || strcmp(line, "written\n") || !fgets(line, 20, f) || strcmp(line, "more\n"))
		return 7;
	if (fputs("x", f) != EOF || fclose(f) != 0)
		return 8;
	f = fopen("r", "r");
	if (!f || !fgets(line, 20, f) || strcmp(line, "Reading\n"))
		return 9;
	return 0;
}
