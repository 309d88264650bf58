#include "calculate.h"

long product(const long *numbers, int count) {
    long total = 1;
    for (int i = 0; i < count; i++)
        total *= numbers[i];
    return total;
}
