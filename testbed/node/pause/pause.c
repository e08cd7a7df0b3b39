/* The first process of a Pod: it holds the Pod's namespaces, reaps orphans, and ends when it is told to. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int number) { _exit(0); }

static void reap(int number) {
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void) {
    signal(SIGINT, leave);
    signal(SIGTERM, leave);
    signal(SIGCHLD, reap);
    for (;;) {
        pause();
    }
}
