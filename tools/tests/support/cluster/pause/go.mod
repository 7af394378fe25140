module corral/pause

go 1.21
