#include "textflag.h"

// siginfo: si_code at 8 (SI_USER is 0), si_pid at 16.
TEXT endedFromOutside<>(SB), NOSPLIT|NOFRAME, $0
	MOVW 8(R1), R3
	CBNZW R3, back
	MOVW 16(R1), R3
	CBNZW R3, back
	MOVD $143, R0
	MOVD $94, R8 // exit_group
	SVC
back:
	RET

TEXT signalReturn<>(SB), NOSPLIT|NOFRAME, $0
	MOVD $139, R8 // rt_sigreturn
	SVC

GLOBL ·endedFromOutsideAddr(SB), RODATA, $8
DATA ·endedFromOutsideAddr(SB)/8, $endedFromOutside<>(SB)

GLOBL ·signalReturnAddr(SB), RODATA, $8
DATA ·signalReturnAddr(SB)/8, $signalReturn<>(SB)
