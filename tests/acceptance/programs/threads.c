/* Eight threads on one file: each writes its own records with pwrite, appends to a second file, opens and closes. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8, RECORDS = 200, LEN = 3000 };
static int shared, appended;

static void check(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static void *work(void *argument)
{
	long number = (long)argument;
	char record[LEN], back[LEN], name[32];
	memset(record, 'a' + (int)number, sizeof record);
	for (int i = 0; i < RECORDS; i++) {
		off_t at = ((off_t)i * THREADS + number) * LEN;
		check(pwrite(shared, record, LEN, at) == LEN, "pwrite");
		check(pread(shared, back, LEN, at) == LEN && !memcmp(record, back, LEN), "pread");
		check(write(appended, record, 7) == 7, "append");
		snprintf(name, sizeof name, "t%ld-%d", number, i % 10);
		int own = open(name, O_CREAT | O_RDWR | O_TRUNC, 0644);
		check(own >= 0 && write(own, name, strlen(name)) > 0 && close(own) == 0, "own file");
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	shared = open("shared", O_CREAT | O_RDWR, 0644);
	appended = open("appended", O_CREAT | O_WRONLY | O_APPEND, 0644);
	check(shared >= 0 && appended >= 0, "open");
	for (long i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, work, (void *)i) == 0, "thread");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	check(lseek(shared, 0, SEEK_END) == (off_t)THREADS * RECORDS * LEN, "size");
	check(lseek(appended, 0, SEEK_END) == (off_t)THREADS * RECORDS * 7, "size of the appended file");
	puts("good");
	return 0;
}
