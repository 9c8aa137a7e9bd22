# Two children hold the pipes; their parent is gone.
sleep 100 &
sleep 100 &
exit 0
