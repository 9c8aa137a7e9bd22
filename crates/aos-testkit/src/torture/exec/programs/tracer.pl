# A child that is traced and stopped, by a parent that only sleeps.
my $child = fork;
unless ($child) { sleep 100; exit 0 }
syscall(101, 16, $child, 0, 0);
sleep 100;
