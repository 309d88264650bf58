/*
 * Calls of programs that say more to Isonomia than the C library can.
 *
 * There is nothing to link: the functions are looked for in the running process, and without the preload client
 * (`isonomia run`) they do nothing and return 0.
 */
#ifndef ISONOMIA_H
#define ISONOMIA_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The program as a whole, as `RTLD_DEFAULT`, which is declared with `_GNU_SOURCE` only. */
#define ISONOMIA_OF_PROCESS ((void *)0)

/*
 * An I/O phase of the job begins, which is going to read and write `bytes` (0: not known); alone, the program would still
 * take `remaining_s` seconds, this phase included (0: not known). It returns at once: what waits is the I/O that follows.
 * Phases of a process may be within each other: the outermost counts. Under the policy `fair-finish` the bytes are the size of the
 * phase, over all targets.
 *
 * 0, or -1 with `errno` if the server cannot be told.
 */
static inline int isonomia_phase_begin(uint64_t bytes, double remaining_s)
{
    int (*begin)(uint64_t, double);
    *(void **)&begin = dlsym(ISONOMIA_OF_PROCESS, "isonomia_phase_begin");
    return begin != NULL ? begin(bytes, remaining_s) : 0;
}

/* The phase is over that was begun last. Nothing happens if none was. As above. */
static inline int isonomia_phase_end(void)
{
    int (*end)(void);
    *(void **)&end = dlsym(ISONOMIA_OF_PROCESS, "isonomia_phase_end");
    return end != NULL ? end() : 0;
}

#ifdef __cplusplus
}
#endif

#endif
