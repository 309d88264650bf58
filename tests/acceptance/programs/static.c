/* Writes, appends, and reads a file, and says how long it is. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char text[64] = "";
    int fd = open(argv[1], O_CREAT | O_RDWR | O_TRUNC, 0644);
    if (fd < 0 || write(fd, "hello, ", 7) != 7) { perror(argv[1]); return 1; }
    close(fd);
    FILE *f = fopen(argv[1], "a");
    if (!f || fprintf(f, "world %d\n", argc) < 0 || fclose(f)) { perror("fopen"); return 1; }
    struct stat st;
    if (stat(argv[1], &st)) { perror("stat"); return 1; }
    f = fopen(argv[1], "r");
    if (!f || !fgets(text, sizeof text, f)) { perror("fgets"); return 1; }
    printf("%lld %s", (long long)st.st_size, text);
    return 0;
}
