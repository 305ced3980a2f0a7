package launch

var refusedHere []Syscall
