# The parent is not scheduled until its child execs, and that it never does (clone with CLONE_VFORK).
my $child = syscall(56, 0x4000 | 17, 0, 0, 0, 0);
sleep 100;
