/* A library that stands for one of two HDF5s, NAME its version; and the program that creates a file by each. */
#ifdef NAME
#define TEXT(x) #x
#define QUOTED(x) TEXT(x)
long create(const char *, unsigned, long, long);
__asm__(".symver create, H5Fcreate@@" QUOTED(NAME));
long create(const char *path, unsigned flags, long creation, long access) {
    (void)path;
    return QUOTED(NAME)[0] + flags + creation + access;
}
#elif defined(CALLER)
long H5Fcreate(const char *, unsigned, long, long);
long CALLER(void);
long CALLER(void) { return H5Fcreate("file", 0, 0, 0); }
#else
#include <stdio.h>
long first(void);
long second(void);
int main(void) {
    printf("%c%c\n", (int)first(), (int)second());
    return 0;
}
#endif
