/* What a file says when it is taken for a terminal, a socket, a queue; one line for each call. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/ipc.h>
#include <execinfo.h>
#include <mntent.h>
#include <termios.h>
#include <unistd.h>

#define SAY(x)                                                                        \
	do {                                                                          \
		errno = 0;                                                            \
		long long result = (long long) (x);                                   \
		printf("%s = %lld %s\n", #x, result, strerrorname_np(errno));         \
	} while (0)

int isfdtype(int fd, int type);

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

int main(void)
{
	int fd = open("file", O_RDWR | O_CREAT, 0644), dir = open(".", O_RDONLY | O_DIRECTORY), ends[2];
	struct termios attributes;
	struct sockaddr_un address = { AF_UNIX };
	socklen_t len = sizeof address;
	struct msghdr message = { 0 };
	struct mmsghdr messages = { 0 };
	char text[100];
	SAY(tcgetattr(fd, &attributes));
	SAY(tcsetattr(fd, 0, &attributes));
	SAY(tcgetpgrp(fd));
	SAY(tcgetsid(fd));
	SAY(tcdrain(fd));
	SAY(tcflush(fd, TCIFLUSH));
	SAY(isatty(fd));
	SAY(ttyname(fd));
	SAY(ttyname_r(fd, text, sizeof text));
	SAY(ptsname(fd));
	SAY(getpeername(fd, (struct sockaddr *) &address, &len));
	SAY(getsockname(fd, (struct sockaddr *) &address, &len));
	SAY(getsockopt(fd, SOL_SOCKET, SO_TYPE, text, &len));
	SAY(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, text, 4));
	SAY(listen(fd, 1));
	SAY(accept(fd, 0, 0));
	SAY(accept4(fd, 0, 0, 0));
	SAY(shutdown(fd, SHUT_RD));
	SAY(send(fd, "x", 1, 0));
	SAY(sendto(fd, "x", 1, 0, 0, 0));
	SAY(sendmsg(fd, &message, 0));
	SAY(sendmmsg(fd, &messages, 1, 0));
	SAY(recv(fd, text, 1, 0));
	SAY(recvfrom(fd, text, 1, 0, 0, 0));
	SAY(recvmsg(fd, &message, 0));
	SAY(recvmmsg(fd, &messages, 1, 0, 0));
	strcpy(address.sun_path, "/no/such");
	SAY(connect(fd, (struct sockaddr *) &address, sizeof address));
	SAY(bind(fd, (struct sockaddr *) &address, sizeof address));
	int unix_socket = socket(AF_UNIX, SOCK_STREAM, 0);
	SAY(mknod("socket", S_IFSOCK | 0644, 0));
	strcpy(address.sun_path, "socket");
	SAY(connect(unix_socket, (struct sockaddr *) &address, sizeof address));
	strcpy(address.sun_path, "missing");
	SAY(connect(unix_socket, (struct sockaddr *) &address, sizeof address));
	SAY(pipe(ends));
	SAY(tee(fd, ends[1], 1, 0));
	struct iovec piece = { text, 1 };
	SAY(vmsplice(fd, &piece, 1, 0));
	SAY(isfdtype(fd, S_IFREG));
	SAY(isfdtype(fd, S_IFSOCK));
	SAY(isfdtype(dir, S_IFDIR));
	SAY(ftok("missing", 1));
	struct stat st;
	stat("file", &st);
	SAY(ftok("file", 5) == (key_t) ((st.st_ino & 0xffff) | (st.st_dev & 0xff) << 16 | 5u << 24));

	/* Printing to a descriptor, more arguments than registers, numbers in both kinds of them. */
	SAY(dprintf(fd, "%d %s %d %d %d %d %.1f %d %.2f\n", 1, "two", 3, 4, 5, 6, 7.0, 8, 9.25));
	SAY(dprintf(fd, "plain\n"));
	FILE *table = setmntent("file", "r");
	SAY(table != 0 && fgets(text, sizeof text, table) && !strcmp(text, "1 two 3 4 5 6 7.0 8 9.25\n") && endmntent(table));
	SAY(lseek(fd, 0, SEEK_END));

	/* Directories in other ways than by streams. */
	for (int i = 0; i < 300; i++) {
		snprintf(text, sizeof text, "d/entry-%03d", i);
		if (i == 0)
			mkdir("d", 0755);
		close(creat(text, 0644));
	}
	struct dirent **list;
	SAY(scandirat(dir, "d", &list, 0, by_name));
	printf("%s %s\n", list[0]->d_name, list[301]->d_name);
	SAY(scandirat(dir, "none", &list, 0, by_name));
	int d = open("d", O_RDONLY | O_DIRECTORY), seen = 0;
	static char buffer[1000];
	for (ssize_t got; (got = getdents64(d, buffer, sizeof buffer)) > 0;)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *) at)->d_reclen)
			seen += !strncmp(((struct dirent64 *) at)->d_name, "entry-", 6);
	SAY(seen);
	SAY(getdents64(d, buffer, sizeof buffer));
	SAY(lseek(d, 0, SEEK_SET));
	SAY(syscall(SYS_getdents64, d, buffer, 8));
	SAY(syscall(SYS_getdents64, d, buffer, sizeof buffer) > 0);
	SAY(getdents64(fd, buffer, sizeof buffer));
	/* A directory that was removed: its stream has ended, its descriptor says that it is not there. */
	mkdir("gone", 0755);
	DIR *gone = opendir("gone");
	SAY(rmdir("gone"));
	struct dirent entry, *next = &entry;
	SAY(readdir(gone) == 0);
	SAY(readdir_r(gone, &entry, &next) == 0 && next == 0);
	SAY(getdents64(dirfd(gone), buffer, sizeof buffer));
	SAY(closedir(gone));
	off_t base = -1;
	SAY(getdirentries(open("d", O_RDONLY), buffer, sizeof buffer, &base) > 0 && base == 0);
	setenv("TMPDIR", "d", 1);
	char *name = tempnam(0, "longprefix");
	printf("%.7s %zu\n", name, strlen(name));
	FILE *temporary = tmpfile();
	SAY(temporary != 0 && fputs("x", temporary) > 0 && fclose(temporary) == 0);
	void *addresses[4];
	backtrace_symbols_fd(addresses, backtrace(addresses, 4), fd);
	SAY(lseek(fd, 0, SEEK_END) > 40);
	return 0;
}
