sleep 100 &
kill -SEGV $$
