/* Walks by fts, and by nftw with the working directory changed: one line for every entry, for each of several ways to walk. */
#define _GNU_SOURCE
#include <sys/types.h>
#include <sys/stat.h>
#include <errno.h>
#include <fts.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int looks;

static int by_name(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

static void show(const char *what, FTSENT *entry)
{
	printf("%s %2d level %d name %s/%d", what, entry->fts_info, entry->fts_level, entry->fts_name,
	       entry->fts_namelen);
	/* The paths of entries that are only listed are not finished yet in the C library. */
	if (!strcmp(what, "read"))
		printf(" path %s/%d", entry->fts_path, entry->fts_pathlen);
	if (looks && (entry->fts_info == FTS_F || entry->fts_info == FTS_SL))
		printf(" %o %lld", entry->fts_statp->st_mode, (long long) entry->fts_statp->st_size);
	if (entry->fts_info == FTS_DC)
		printf(" of %s", entry->fts_cycle->fts_name);
	if (entry->fts_info == FTS_NS || entry->fts_info == FTS_DNR)
		printf(" %s", strerror(entry->fts_errno));
	printf(" above %s\n", entry->fts_parent->fts_level < 0 ? "-" : entry->fts_parent->fts_name);
}

static void walk(const char *title, char **roots, int options)
{
	printf("== %s\n", title);
	looks = !(options & FTS_NOSTAT);
	FTS *tree = fts_open(roots, options, by_name);
	if (!tree) {
		printf("not opened: %s\n", strerror(errno));
		return;
	}
	FTSENT *entry;
	while ((entry = fts_read(tree))) {
		show("read", entry);
		if (entry->fts_info == FTS_D && !strcmp(entry->fts_name, "skipped"))
			printf("skip %d\n", fts_set(tree, entry, FTS_SKIP));
		if (entry->fts_info == FTS_SL && !strcmp(entry->fts_name, "followed"))
			printf("follow %d\n", fts_set(tree, entry, FTS_FOLLOW));
		if (entry->fts_info == FTS_F && !strcmp(entry->fts_name, "again") && entry->fts_number++ == 0)
			printf("again %d\n", fts_set(tree, entry, FTS_AGAIN));
		if (entry->fts_info == FTS_D && !strcmp(entry->fts_name, "listed"))
			for (FTSENT *child = fts_children(tree, 0); child; child = child->fts_link) {
				show("child", child);
				if (!strcmp(child->fts_name, "b"))
					fts_set(tree, child, FTS_SKIP);
			}
		if (entry->fts_info == FTS_D && !strcmp(entry->fts_name, "names"))
			for (FTSENT *child = fts_children(tree, FTS_NAMEONLY); child; child = child->fts_link)
				printf("only %s %d\n", child->fts_name, child->fts_level);
	}
	printf("end: %s, close %d\n", strerror(errno), fts_close(tree));
}

static int visit(const char *path, const struct stat *found, int kind, struct FTW *place)
{
	char here[5000];
	struct stat st;
	printf("%d %s base %d level %d in %s %d\n", kind, path, place->base, place->level,
	       strrchr(getcwd(here, sizeof here), '/'), lstat(path + place->base, &st) == 0 && st.st_ino == found->st_ino);
	return 0;
}

int main(int argc, char **argv)
{
	if (!strcmp(argv[1], "nftw")) {
		for (int flags = 0; flags < 2; flags++)
			for (char **root = argv + 2; *root; root++)
				printf("= %d\n", nftw(*root, visit, 9, FTW_CHDIR | FTW_PHYS | (flags ? FTW_DEPTH : 0)));
		char here[5000];
		printf("back in %s\n", strrchr(getcwd(here, sizeof here), '/'));
		return 0;
	}
	walk("physical", argv + 1, FTS_PHYSICAL | FTS_NOCHDIR);
	walk("logical", argv + 1, FTS_LOGICAL);
	walk("dots", argv + 1, FTS_PHYSICAL | FTS_SEEDOT | FTS_NOCHDIR);
	walk("roots followed", argv + 1, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR);
	walk("not looked at", argv + 1, FTS_PHYSICAL | FTS_NOSTAT | FTS_NOCHDIR | FTS_XDEV);
	walk("directories changed", argv + 1, FTS_PHYSICAL);
	walk("bad option", argv + 1, 0x4000);
	walk("empty path", (char *[]) { "tree", "", 0 }, FTS_PHYSICAL);
	FTS *tree = fts_open(argv + 1, FTS_PHYSICAL, by_name);
	for (FTSENT *root = fts_children(tree, 0); root; root = root->fts_link)
		printf("root %s %d\n", root->fts_name, root->fts_info);
	printf("%d\n", fts_set(tree, fts_read(tree), 99));
	printf("%d\n", fts_close(tree));
	return 0;
}
