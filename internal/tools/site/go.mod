module github.com/dlxctl/dlxctl/internal/tools/site

go 1.26.0
