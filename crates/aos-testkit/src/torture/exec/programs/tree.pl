# A hundred processes, each in a session of its own.
use POSIX;
for (1 .. 10) {
    next if fork;
    for (1 .. 9) { last unless fork }
    POSIX::setsid();
    sleep 100;
    exit 0;
}
sleep 100;
