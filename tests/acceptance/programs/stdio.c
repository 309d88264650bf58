/* C's own streams: buffering, seeking, reopening, descriptors below them. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

int main(void)
{
	FILE *f = fopen("f", "w+");
	check(f != NULL, "fopen");
	for (int i = 0; i < 5000; i++)
		check(fprintf(f, "%d\n", i) > 0, "fprintf");
	rewind(f);
	int last = -1, count = 0, n;
	while (fscanf(f, "%d", &n) == 1) {
		check(n == last + 1, "order");
		last = n;
		count++;
	}
	check(count == 5000 && feof(f), "count");
	struct stat stat_;
	check(fstat(fileno(f), &stat_) == 0 && stat_.st_size == 23890, "fileno");
	check(fseek(f, 10, SEEK_SET) == 0 && fputs("XY", f) >= 0 && fflush(f) == 0 && ftell(f) == 12, "seek");
	check(fclose(f) == 0, "fclose");

	f = fopen("f", "a");
	check(f && fputs("end\n", f) >= 0 && fclose(f) == 0, "append");
	f = fopen("f", "r");
	char *line = NULL;
	size_t room = 0;
	char kept[16] = "";
	while (getline(&line, &room, f) > 0)
		snprintf(kept, sizeof kept, "%s", line);
	check(!strcmp(kept, "end\n"), "getline");
	f = freopen("f", "r", f);
	check(f && getline(&line, &room, f) == 2 && fclose(f) == 0, "freopen");
	f = fopen("g", "w");
	check(f && fputs("g", f) >= 0 && fclose(f) == 0, "another file");
	check(fopen("missing", "r") == NULL && errno == ENOENT, "missing");
	check(remove("g") == 0 && rename("f", "h") == 0, "remove and rename");

	DIR *dir = opendir(".");
	check(dir != NULL, "opendir");
	int entries = 0;
	for (struct dirent *entry; (entry = readdir(dir));)
		entries += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	check(closedir(dir) == 0 && entries == 1, "entries");
	check(freopen("log", "w", stdout) != NULL, "freopen of stdout");
	printf("good\n");
	return 0;
}
