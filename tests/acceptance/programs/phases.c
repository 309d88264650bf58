/* Writes a file in a phase that it declares; with "hang" it stays in the phase until it is killed. */
#include "isonomia.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2 || isonomia_phase_begin(4096, 2.5) != 0) return 1;
    FILE *file = fopen(argv[1], "w");
    if (file == NULL || fputs("from C", file) < 0 || fclose(file) != 0) return 2;
    if (argc > 2 && strcmp(argv[2], "hang") == 0) {
        puts("in a phase");
        fflush(stdout);
        for (;;) pause();
    }
    return isonomia_phase_end() == 0 && isonomia_phase_end() == 0 ? 0 : 3;
}
