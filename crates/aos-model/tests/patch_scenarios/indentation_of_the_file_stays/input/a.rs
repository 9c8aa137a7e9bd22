mod m {
    fn f() {
        one();
        two();
    }
}
