rm -f pipe
mkfifo pipe
cat pipe &
(exec 3> pipe; sleep 100) &
wait
