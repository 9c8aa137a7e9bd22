# Under a limit on processes.
f() { f | f & }
f
sleep 100
