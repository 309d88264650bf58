BEGIN {
    print "static const long squares[] = {"
    for (i = 1; i <= 1000; i++)
        printf "%d,\n", i * i
    print "};"
}
