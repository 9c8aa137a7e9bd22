nohup sleep 100 > /dev/null 2>&1 &
nohup setsid sleep 100 &
sleep 0.1
