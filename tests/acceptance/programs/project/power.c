#include "calculate.h"

long power(long base, int exponent) {
    long result = 1;
    while (exponent-- > 0)
        result *= base;
    return result;
}
