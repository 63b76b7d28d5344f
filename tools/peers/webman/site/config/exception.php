<?php
// Nothing here goes wrong on purpose; the framework wants a handler all the same.
return ['' => Webman\Exception\ExceptionHandler::class];
