for i in 1 2 3 4 5; do
    sleep 100 &
    kill -STOP $!
done
wait
