<?php
return new Webman\Container();
