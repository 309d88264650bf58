/* POSIX AIO on a file of the working directory and, in lists, on one of the scratch directory; prints what fails. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 4096
#define COUNT 16

static int failed;
static volatile sig_atomic_t signals, last_value, last_code;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t called = PTHREAD_COND_INITIALIZER;
static int calls, call_sum;
static char data[COUNT][BLOCK], back[COUNT][BLOCK];

#define CHECK(x)                                                                     \
	do {                                                                         \
		if (!(x)) {                                                          \
			failed++;                                                    \
			printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno));  \
		}                                                                    \
	} while (0)

static void on_signal(int number, siginfo_t *info, void *context)
{
	signals++;
	last_value = info->si_value.sival_int;
	last_code = info->si_code;
}

static void on_call(union sigval value)
{
	pthread_mutex_lock(&lock);
	calls++;
	call_sum += value.sival_int;
	pthread_cond_signal(&called);
	pthread_mutex_unlock(&lock);
}

static ssize_t finish(struct aiocb *block)
{
	const struct aiocb *list[] = { 0, block };
	while (aio_error(block) == EINPROGRESS)
		if (aio_suspend(list, 2, 0) != 0 && errno != EINTR)
			return -2;
	int error = aio_error(block);
	ssize_t count = aio_return(block);
	errno = error;
	return count;
}

static struct aiocb prepared(int fd, void *buffer, size_t len, off_t offset)
{
	struct aiocb block;
	memset(&block, 0, sizeof block);
	block.aio_fildes = fd;
	block.aio_buf = buffer;
	block.aio_nbytes = len;
	block.aio_offset = offset;
	block.aio_sigevent.sigev_notify = SIGEV_NONE;
	return block;
}

int main(int argc, char **argv)
{
	int fd = open("aio", O_RDWR | O_CREAT | O_TRUNC, 0644);
	struct aiocb blocks[COUNT], *list[COUNT + 2];
	for (int i = 0; i < COUNT; i++) {
		memset(data[i], 'a' + i, BLOCK);
		blocks[i] = prepared(fd, data[i], BLOCK, (off_t) i * BLOCK);
		CHECK(aio_write(blocks + i) == 0);
	}
	for (int i = 0; i < COUNT; i++)
		CHECK(finish(blocks + i) == BLOCK);
	CHECK(lseek(fd, 0, SEEK_CUR) == 0 && lseek(fd, 0, SEEK_END) == COUNT * BLOCK);
	struct aiocb block = prepared(fd, 0, 0, 0);
	CHECK(aio_fsync(O_SYNC, &block) == 0 && finish(&block) == 0);
	CHECK(aio_fsync(O_DSYNC, &block) == 0 && finish(&block) == 0);
	CHECK(aio_fsync(O_RDWR, &block) == -1 && errno == EINVAL);
	CHECK(aio_cancel(fd, 0) == AIO_ALLDONE && aio_cancel(fd, &block) == AIO_ALLDONE);

	for (int i = 0; i < COUNT; i++) {
		blocks[i] = prepared(fd, back[i], BLOCK, (off_t) i * BLOCK);
		blocks[i].aio_lio_opcode = LIO_READ;
		list[i] = blocks + i;
	}
	int local = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
	struct aiocb other = prepared(local, "local", 5, 0);
	other.aio_lio_opcode = LIO_WRITE;
	list[COUNT] = &other;
	list[COUNT + 1] = 0;
	CHECK(lio_listio(LIO_WAIT, list, COUNT + 2, 0) == 0);
	CHECK(memcmp(data, back, sizeof data) == 0 && finish(blocks + 3) == BLOCK && finish(&other) == 5);
	CHECK(pread(local, back, 9, 0) == 5 && !memcmp(back, "local", 5));

	/* One entry fails; one is past the end; one does nothing. */
	blocks[0].aio_offset = -1;
	blocks[1].aio_offset = COUNT * BLOCK;
	blocks[2].aio_lio_opcode = LIO_NOP;
	CHECK(lio_listio(LIO_WAIT, list, COUNT + 1, 0) == -1 && errno == EIO);
	CHECK(finish(blocks) == -1 && errno == EINVAL && finish(blocks + 1) == 0 && finish(blocks + 5) == BLOCK);
	CHECK(lio_listio(77, list, 1, 0) == -1 && errno == EINVAL);

	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
	sigset_t mask, before;
	sigaction(SIGUSR1, &action, 0);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigprocmask(SIG_BLOCK, &mask, &before);
	block = prepared(fd, data[1], BLOCK, 0);
	block.aio_sigevent.sigev_notify = SIGEV_SIGNAL;
	block.aio_sigevent.sigev_signo = SIGUSR1;
	block.aio_sigevent.sigev_value.sival_int = 42;
	CHECK(aio_write(&block) == 0);
	while (signals < 1)
		sigsuspend(&before);
	CHECK(last_value == 42 && last_code == SI_ASYNCIO && finish(&block) == BLOCK);
	struct sigevent all = block.aio_sigevent;
	all.sigev_value.sival_int = 7;
	blocks[0].aio_offset = 0;
	CHECK(lio_listio(LIO_NOWAIT, list, COUNT + 1, &all) == 0);
	while (signals < 2)
		sigsuspend(&before);
	CHECK(last_value == 7 && finish(blocks) == BLOCK);

	for (int i = 0; i < 4; i++) {
		blocks[i] = prepared(fd, back[i], BLOCK, (off_t) i * BLOCK);
		blocks[i].aio_sigevent.sigev_notify = SIGEV_THREAD;
		blocks[i].aio_sigevent.sigev_notify_function = on_call;
		blocks[i].aio_sigevent.sigev_value.sival_int = 1 << i;
		CHECK(aio_read(blocks + i) == 0);
	}
	pthread_mutex_lock(&lock);
	while (calls < 4)
		pthread_cond_wait(&called, &lock);
	pthread_mutex_unlock(&lock);
	CHECK(call_sum == 15 && finish(blocks + 2) == BLOCK && back[2][9] == 'c' && back[0][9] == 'b');

	int writer = open("aio", O_WRONLY | O_APPEND), reader = open("aio", O_RDONLY);
	block = prepared(writer, "end", 3, 0);
	CHECK(aio_write(&block) == 0 && finish(&block) == 3 && lseek(reader, 0, SEEK_END) == COUNT * BLOCK + 3);
	CHECK(aio_read(&block) == 0 && finish(&block) == -1 && errno == EBADF);
	block.aio_fildes = reader;
	CHECK(aio_write(&block) == 0 && finish(&block) == -1 && errno == EBADF);
	CHECK(aio_fsync(O_SYNC, &block) == 0 && finish(&block) == 0);
	block.aio_reqprio = 99;
	CHECK(aio_read(&block) == -1 && errno == EINVAL && aio_error(&block) == EINVAL);
	CHECK(aio_cancel(writer, &block) == -1 && errno == EINVAL);
	block = prepared(99, back, 1, 0);
	CHECK(aio_read(&block) == 0 && finish(&block) == -1 && errno == EBADF);
	printf("%d failed\n", failed);
	return failed != 0;
}
