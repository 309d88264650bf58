long sum(const long *numbers, int count);
long product(const long *numbers, int count);
long power(long base, int exponent);
