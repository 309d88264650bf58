/* An allocator as there are many: it opens files and maps memory with its lock taken, at its first use and again and
   again, locks itself around forks, and cannot bear to be asked for memory by what it calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ARENA (1 << 20)
#define OFTEN 16

static atomic_int owner;
static char *next, *end;
static unsigned count;

static void enter(void) {
    int me = syscall(SYS_gettid), nobody = 0;
    if (atomic_load(&owner) == me) {
        static const char text[] = "asked for memory while it allocates\n";
        write(2, text, sizeof text - 1);
        abort();
    }
    while (!atomic_compare_exchange_weak(&owner, &nobody, me)) {
        nobody = 0;
        sched_yield();
    }
}

static void leave(void) { atomic_store(&owner, 0); }

static void *map(size_t len) {
    void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

/* What such libraries look at. */
static void look_around(void) {
    char text[256];
    struct stat found;
    if (readlink("/etc/malloc.conf", text, sizeof text) > 0) abort();
    access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK);
    if (stat("/proc/self", &found) || !S_ISDIR(found.st_mode)) abort();
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &found) || read(fd, text, sizeof text) < 1) abort();
    if (lseek(fd, 0, SEEK_SET) || pread(fd, text, 1, 0) != 1) abort();
    if (fcntl(fd, F_GETFD) != FD_CLOEXEC || close(fd)) abort();
    void *page = map(4096);
    if (mprotect(page, 4096, PROT_READ) || munmap(page, 4096)) abort();
}

static void *allocate(size_t align, size_t len) {
    int before = errno;
    enter();
    if (count++ % OFTEN == 0) look_around();
    uintptr_t place = ((uintptr_t)next + 16 + align - 1) & ~(uintptr_t)(align - 1);
    if (!next || place + len > (uintptr_t)end) {
        size_t room = len + align + 16 > ARENA ? len + align + 4096 : ARENA;
        next = map(room);
        end = next + room;
        place = ((uintptr_t)next + 16 + align - 1) & ~(uintptr_t)(align - 1);
    }
    ((size_t *)place)[-1] = len;
    next = (char *)place + len;
    leave();
    errno = before;
    return (void *)place;
}

size_t malloc_usable_size(void *place) { return place ? ((size_t *)place)[-1] : 0; }
void *malloc(size_t len) { return allocate(16, len); }
void *calloc(size_t n, size_t len) { return allocate(16, n * len); }
void *memalign(size_t align, size_t len) { return allocate(align < 16 ? 16 : align, len); }
void *aligned_alloc(size_t align, size_t len) { return memalign(align, len); }
int posix_memalign(void **place, size_t align, size_t len) { return !(*place = memalign(align, len)); }

/* Nothing is used again, but a free also looks around, as one that gives memory back does. What was not from here is found
   out by the length. */
void free(void *place) {
    if (!place) return;
    int before = errno;
    size_t len = malloc_usable_size(place);
    if (len > (size_t)1 << 40) abort();
    memset(place, 0xdd, len);
    enter();
    if (count++ % OFTEN == 0) look_around();
    leave();
    errno = before;
}

void *realloc(void *place, size_t len) {
    void *fresh = malloc(len);
    if (place) memcpy(fresh, place, len < malloc_usable_size(place) ? len : malloc_usable_size(place));
    free(place);
    return fresh;
}

__attribute__((constructor)) static void start(void) { pthread_atfork(enter, leave, leave); }
