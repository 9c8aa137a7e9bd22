for (1 .. 50) { exit 0 unless fork }
sleep 100;
