coproc cat
exec > >(tee -a copy) 2>&1
echo hi
sleep 100
