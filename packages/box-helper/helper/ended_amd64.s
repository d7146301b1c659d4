#include "textflag.h"

// siginfo: si_code at 8 (SI_USER is 0), si_pid at 16.
TEXT endedFromOutside<>(SB), NOSPLIT|NOFRAME, $0
	CMPL 8(SI), $0
	JNE  back
	CMPL 16(SI), $0
	JNE  back
	MOVL $143, DI
	MOVL $231, AX // exit_group
	SYSCALL
back:
	RET

TEXT signalReturn<>(SB), NOSPLIT|NOFRAME, $0
	MOVL $15, AX // rt_sigreturn
	SYSCALL
	INT  $3

GLOBL ·endedFromOutsideAddr(SB), RODATA, $8
DATA ·endedFromOutsideAddr(SB)/8, $endedFromOutside<>(SB)

GLOBL ·signalReturnAddr(SB), RODATA, $8
DATA ·signalReturnAddr(SB)/8, $signalReturn<>(SB)
