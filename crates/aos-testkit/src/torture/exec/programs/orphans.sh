for i in 1 2 3 4 5 6 7 8 9 10; do
    (sh -c 'sleep 100 & exit 0' &)
done
sleep 0.2
