/* A worker that prints what its container gave it: arguments, environment, open descriptors and signals. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments, char **environment) {
    for (int i = 1; i < count; i++) printf("argument %s\n", arguments[i]);
    for (char **one = environment; *one; one++) printf("variable %s\n", *one);
    for (int number = 0; number < 256; number++)
        if (fcntl(number, F_GETFD) >= 0) printf("descriptor %d\n", number);
    FILE *status = fopen("/proc/self/status", "r");
    for (char line[256]; status && fgets(line, sizeof line, status);)
        if (!strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6)) printf("%s", line);
    return 7;
}
