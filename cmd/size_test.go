package cmd

import "testing"

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"0": 0, "1": 1, "512KiB": 512 << 10, "32MiB": 32 << 20, "1GiB": 1 << 30,
		"33554432": 32 << 20,
	} {
		var s size
		if err := s.Set(text); err != nil || int(s) != want {
			t.Errorf("%s gives %d and the error %v, want %d", text, s, err, want)
		}
		var again size
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%s is printed as %s", text, s.String())
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "32 MiB", "32mb", "9999999999GiB", "x"} {
		var s size
		if err := s.Set(text); err == nil {
			t.Errorf("%q is accepted as %d", text, s)
		}
	}
}
